module outoftree.example/peers/gotables

go 1.24
