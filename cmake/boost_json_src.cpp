// Boost.JSON's implementation, compiled once for all targets.
#include <boost/json/src.hpp>
