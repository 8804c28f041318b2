module spanwise/gomem

go 1.23

require github.com/langhuihui/gomem v0.0.0

// bench/gomem/compare.py DIR adds: replace github.com/langhuihui/gomem => DIR
