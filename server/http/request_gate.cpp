#include "server/http/request_gate.hpp"

#include <algorithm>
#include <boost/url/authority_view.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <cstdint>
#include <utility>

#include "base/ascii.hpp"

namespace distilld::http {
namespace {

namespace urls = boost::urls;

/// A host in the one form in which hosts are compared, and the port when one is given.
struct Place {
    std::string host;  ///< an address as Asio writes it, or a name in lower case without its last dot
    std::optional<boost::asio::ip::address> address;
    std::optional<std::uint16_t> port;
};

std::optional<Place> place_of(const urls::authority_view& authority) {
    Place place;
    if (authority.has_port() && !authority.port().empty()) {
        place.port = authority.port_number();
    }
    if (authority.has_userinfo() || place.port == 0) {  // 0 is also what does not fit
        return std::nullopt;
    }
    place.host = ascii_lower(std::string(authority.host_address()));
    if (place.host.ends_with('.')) {
        place.host.pop_back();
    }
    if (place.host.empty()) {
        return std::nullopt;
    }
    boost::system::error_code no_address;
    const auto address = boost::asio::ip::make_address(place.host, no_address);
    if (!no_address) {
        place.address = address;
        place.host = address.to_string();
    }
    return place;
}

std::optional<Place> parse_place(std::string_view text) {
    const auto authority = urls::parse_authority(text);
    return authority.has_value() ? place_of(*authority) : std::nullopt;
}

std::vector<std::string_view> values_of(const api::Headers& headers, std::string_view name) {
    std::vector<std::string_view> values;
    for (const auto& [field, value] : headers) {
        if (ascii_lower(field) == name) {
            values.emplace_back(value);
        }
    }
    return values;
}

/// Whether a page of this origin is of the server that the request names: same host and port. The scheme is not
/// compared, for what we see behind a proxy that ends TLS is not what the browser saw.
bool is_own(std::string_view origin, std::string_view host) {
    const auto url = urls::parse_uri(origin);
    const auto named = parse_place(host);
    if (!url.has_value() || !url->has_authority() || !named) {
        return false;
    }
    const auto page = place_of(url->authority());
    if (!page || page->host != named->host) {
        return false;
    }
    const std::uint16_t usual = url->scheme() == "https" ? 443 : 80;
    return page->port.value_or(usual) == named->port.value_or(usual);
}

std::optional<std::string> other_site(const RequestHead& head) {
    const auto& headers = head.request.headers;
    for (const auto site : values_of(headers, "sec-fetch-site")) {
        if (site != "same-origin" && site != "none") {
            return "the browser says that the request comes from another site (Sec-Fetch-Site: " + std::string(site) +
                   "); pages of other sites may not start or change anything here";
        }
    }
    const auto hosts = values_of(headers, "host");
    for (const auto origin : values_of(headers, "origin")) {
        if (hosts.empty() || !is_own(origin, hosts.front())) {
            return "the request comes from a page of " + std::string(origin) +
                   " (Origin); pages of other sites may not start or change anything here";
        }
    }
    return std::nullopt;
}

/// "application/json; charset=utf-8" is JSON, and so is anything "+json".
std::optional<std::string> other_type(const RequestHead& head) {
    const auto header = head.request.header("content-type");
    auto type = ascii_lower(header ? header->substr(0, header->find(';')) : "");
    type.erase(0, type.find_first_not_of(" \t"));
    type.erase(type.find_last_not_of(" \t") + 1);
    if (type == "application/json" || type.ends_with("+json")) {
        return std::nullopt;
    }
    return (header ? "the content type is '" + type + "'" : std::string("the body has no Content-Type")) +
           ", application/json is expected (curl: --json @spec.json)";
}

api::Problem problem_of(const RequestHead& head, unsigned status, std::string code, std::string detail,
                        std::string param) {
    api::Problem problem;
    problem.status = status;
    problem.code = std::move(code);
    problem.detail = std::move(detail);
    problem.param = std::move(param);
    problem.instance = head.request.path;
    return problem;
}

}  // namespace

Result<RequestGate> RequestGate::make(const std::string& listen_host, const boost::asio::ip::address& bound,
                                      const std::vector<std::string>& hosts) {
    RequestGate gate;
    gate.any_address_ = bound.is_unspecified();
    gate.names_ = {"localhost", bound.to_string(), ascii_lower(listen_host)};
    for (const auto& host : hosts) {
        // An IPv6 address may be written with brackets, as in a URL, or without.
        const bool bare = std::ranges::count(host, ':') > 1 && !host.starts_with('[');
        const auto place = parse_place(bare ? "[" + host + "]" : host);
        if (!place || place->port) {
            return invalid_input("'" + host + "' is not the name or address of a host (without scheme and port)");
        }
        gate.names_.insert(place->host);
    }
    return gate;
}

bool RequestGate::knows(std::string_view authority) const {
    const auto place = parse_place(authority);
    if (!place) {
        return false;
    }
    if (place->address && (any_address_ || place->address->is_loopback())) {
        return true;
    }
    return names_.contains(place->host);
}

std::optional<std::string> RequestGate::foreign_host(const RequestHead& head) const {
    if (!head.authority.empty() && !knows(head.authority)) {
        return std::string(head.authority);
    }
    for (const auto host : values_of(head.request.headers, "host")) {
        if (!knows(host)) {
            return std::string(host);
        }
    }
    return std::nullopt;  // also without any Host, as HTTP/1.0 may: no browser does that
}

std::optional<api::Problem> RequestGate::refusal(const RequestHead& head) const {
    const bool any_host = head.route != nullptr && head.route->any_host;
    if (const auto host = any_host ? std::nullopt : foreign_host(head)) {
        return problem_of(head, 421, "unknown_host",
                          "this server is not called '" + *host +
                              "' (Host); start it with --host NAME for each name "
                              "that it is to answer to",
                          "host");
    }
    if (head.request.method != "GET" && head.request.method != "HEAD") {
        if (auto why = other_site(head)) {
            return problem_of(head, 403, "cross_site", *std::move(why), "origin");
        }
    }
    if (head.has_body && head.route != nullptr && head.route->json_body) {
        if (auto why = other_type(head)) {
            return problem_of(head, 415, "unsupported_media_type", *std::move(why), "content-type");
        }
    }
    return std::nullopt;
}

}  // namespace distilld::http
