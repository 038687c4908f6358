/* For programs that include the marker interface of LIKWID by its older name. */
#include "likwid-marker.h"
