// Boost.JSON's and Boost.URL's implementations, compiled once for all targets.
#include <boost/json/src.hpp>
#include <boost/url/src.hpp>
