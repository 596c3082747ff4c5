package experiment

func stall() *Experiment {
	return &Experiment{Name: "stall", design: func(Setting) (*design, error) { return &design{name: "stall"}, nil }}
}
