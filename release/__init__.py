"""Makes what is given away: the wheelhouse, the Debian package, the bill of materials and their checksums."""
