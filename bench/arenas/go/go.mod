module spanwise.example/arenas

go 1.21
