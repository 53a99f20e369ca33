// Asio's implementation, compiled once for all targets.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
