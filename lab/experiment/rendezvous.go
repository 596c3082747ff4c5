package experiment

func rendezvous() *Experiment {
	return &Experiment{Name: "rendezvous", design: func(Setting) (*design, error) { return &design{name: "rendezvous"}, nil }}
}
