package netns

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openTUN makes a TUN device in a namespace. It ends with its file.
func openTUN(namespace, name string) (device *os.File, err error) {
	err = inside(namespace, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
		}
		req, err := unix.NewIfreq(name)
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return errors.Join(os.NewSyscallError("TUNSETIFF", err), unix.Close(fd))
		}
		device = os.NewFile(uintptr(fd), "/dev/net/tun")
		return nil
	})
	return device, err
}
