{{ eq .n 42 }} {{ eq .name "shop" }} {{ eq .name "a" "b" "shop" }} {{ eq .n 1 2 }} {{ ne .n 1 }} {{ eq .yes true }} {{ eq .pi 3.5 }}
