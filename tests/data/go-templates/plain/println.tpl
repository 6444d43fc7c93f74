{{ println "a" 1 true }}{{ println }}{{ println .words }}x
