package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kgate/kgate/lab/experiment"
)

// WriteFiles writes NAME.csv and NAME-1.svg, NAME-2.svg, ... into dir, which is made
// if it is not there, and returns the names of what it has written.
func WriteFiles(dir string, r *experiment.Result) ([]string, error) {
	var written []string
	put := func(name string, write func(io.Writer) error) error {
		if err := writeFile(filepath.Join(dir, name), write); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		written = append(written, name)
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if err := put(r.Experiment.Name+".csv", r.Table.WriteCSV); err != nil {
		return written, err
	}
	for i, p := range r.Experiment.Plots {
		chart := newChart(r.Table, p)
		name := fmt.Sprintf("%s-%d.svg", r.Experiment.Name, i+1)
		if err := put(name, func(w io.Writer) error { return chart.write(w, true) }); err != nil {
			return written, err
		}
	}
	return written, nil
}

// writeFile leaves no half file behind.
func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error is told
		}
	}()
	if err = write(f); err != nil {
		f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
