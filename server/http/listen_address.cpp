#include "server/http/listen_address.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <utility>

#include "base/ascii.hpp"

namespace distilld::http {
namespace {

using boost::asio::ip::tcp;

struct HostPort {
    std::string host;
    std::string port;
};

Result<HostPort> split_listen(const std::string& listen) {
    const std::string what = "'" + listen + "' is not ADDRESS:PORT";
    const std::size_t colon = listen.rfind(':');
    if (colon == std::string::npos) {
        return invalid_input(what);
    }
    HostPort parts{listen.substr(0, colon), listen.substr(colon + 1)};
    if (parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']') {
        parts.host = parts.host.substr(1, parts.host.size() - 2);
    } else if (parts.host.find(':') != std::string::npos) {
        return invalid_input(what + " (an IPv6 address is written [ADDRESS]:PORT)");
    }
    if (parts.host.empty() || !number_from<std::uint16_t>(parts.port)) {
        return invalid_input(what);
    }
    return parts;
}

}  // namespace

Result<ListenAddress> resolve_listen(const std::string& listen) {
    auto parts = split_listen(listen);
    if (!parts) {
        return parts.error();
    }
    boost::asio::io_context context;
    boost::system::error_code failed;
    tcp::resolver resolver(context);
    const auto found = resolver.resolve(parts->host, parts->port, tcp::resolver::passive, failed);
    if (failed) {
        return invalid_input("cannot listen on " + listen + ": " + failed.message());
    }
    return ListenAddress{std::move(parts->host), found.begin()->endpoint()};
}

}  // namespace distilld::http
