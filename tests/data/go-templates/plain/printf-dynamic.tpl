{{ $f := "%s=%d;" }}{{ printf $f "a" 1 }}{{ printf (print "%" "d") 5 }}
