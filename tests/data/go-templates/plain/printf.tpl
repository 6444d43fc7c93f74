{{ printf "%d %s %v %q %t %%" 1 "a" .words "q\"x" true }} {{ printf "%5d|%-5d|%05d|%+d" 1 2 3 4 }} {{ printf "%x %X %o %b %c" 255 255 8 5 65 }} {{ printf "%.2f %6.1f %e %g" 1.5 2.25 1000.5 .pi }}
