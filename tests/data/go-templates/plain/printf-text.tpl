{{ printf "%5s|%-5s|%.2s|%x" "ab" "cd" "xyz" "hi" }} {{ printf "%v %v %v" .nothing .map .mixed }} {{ printf "plain" }} {{ printf "%s" .words }} {{ printf "100%%" }} {{ printf "%s" .percent }}
