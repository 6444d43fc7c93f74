{{ index .words 1 }} {{ index .map "a" }} {{ index .nested 0 1 }} [{{ index .map "absent" }}] {{ index .name 0 }} {{ index .map "c" "d" 0 }}
