module spanwise.example/collectors

go 1.21
