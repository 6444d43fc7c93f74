{{ and .name .n }} {{ and .empty .n }}| {{ or .empty .zero .name }} {{ or .empty .zero }} {{ not .empty }} {{ not .yes }} {{ and 1 2 3 }} {{ or 0 "" }}|
