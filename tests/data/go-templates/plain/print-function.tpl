{{ print "a" 1 2 "b" 3 }} {{ print 1 2 }} {{ print "a" "b" }} {{ print true false }} {{ print .nothing }} {{ print }}|{{ print .words 1 }}
