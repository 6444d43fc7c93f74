{{ lt 1 2 }} {{ le 2 2 }} {{ gt .n 50 }} {{ ge .n 42 }} {{ lt "a" "b" }} {{ gt .pi 3.4 }} {{ lt "ä" "z" }} {{ lt .neg 0 }}
