module spanwise/bench/seed

go 1.21
