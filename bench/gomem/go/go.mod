module spanwise/gomem

go 1.23

require github.com/langhuihui/gomem v0.0.0

// ./dev bench --peer-go DIR adds: replace github.com/langhuihui/gomem => DIR
