"""Numbers to pictures: the only part of the package that imports matplotlib."""
