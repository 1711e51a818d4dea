// The programs of the bed's own images: no dependency beyond the standard library.
module outoftree.example/bed/programs

go 1.24
