// Beast's implementation, compiled once for all targets.
#include <boost/beast/src.hpp>
