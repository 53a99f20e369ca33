#include "server/http/origin_check.hpp"

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

/// A host in normalized form for comparison, with its port if given.
struct Place {
    std::string host;  ///< an address in Asio's notation, or a lower-case name without its trailing dot
    std::optional<boost::asio::ip::address> address;
    std::optional<std::uint16_t> port;
};

std::optional<Place> place_of(const urls::authority_view& authority) {
    Place place;
    if (authority.has_port() && !authority.port().empty()) {
        place.port = authority.port_number();
    }
    if (authority.has_userinfo() || place.port == 0) {  // port_number() is 0 for a port out of range, too
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

std::vector<std::string_view> values_of(const http::Headers& headers, std::string_view name) {
    std::vector<std::string_view> values;
    for (const auto& [field, value] : headers) {
        if (ascii_lower(field) == name) {
            values.emplace_back(value);
        }
    }
    return values;
}

/// Whether the origin is the server that the request names: same host and port. The scheme is not compared, because
/// behind a proxy that terminates TLS we see another one than the browser.
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

/// Accepts "application/json; charset=utf-8" and any "+json".
std::optional<std::string> other_type(const RequestHead& head) {
    const auto header = head.request.header("content-type");
    const auto type = ascii_lower(trimmed(header ? header->substr(0, header->find(';')) : ""));
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

Result<OriginCheck> OriginCheck::make(const std::string& listen_host, const boost::asio::ip::address& bound,
                                      const std::vector<std::string>& hosts) {
    OriginCheck origin_check;
    origin_check.any_address_ = bound.is_unspecified();
    origin_check.names_ = {"localhost", bound.to_string(), ascii_lower(listen_host)};
    for (const auto& host : hosts) {
        // IPv6 addresses may be written with brackets, as in a URL, or without.
        const bool bare = std::ranges::count(host, ':') > 1 && !host.starts_with('[');
        const auto place = parse_place(bare ? "[" + host + "]" : host);
        if (!place || place->port) {
            return invalid_input("'" + host + "' is not the name or address of a host (without scheme and port)");
        }
        origin_check.names_.insert(place->host);
    }
    return origin_check;
}

bool OriginCheck::knows(std::string_view authority) const {
    const auto place = parse_place(authority);
    if (!place) {
        return false;
    }
    if (place->address && (any_address_ || place->address->is_loopback())) {
        return true;
    }
    return names_.contains(place->host);
}

std::optional<std::string> OriginCheck::foreign_host(const RequestHead& head) const {
    if (!head.authority.empty() && !knows(head.authority)) {
        return std::string(head.authority);
    }
    for (const auto host : values_of(head.request.headers, "host")) {
        if (!knows(host)) {
            return std::string(host);
        }
    }
    return std::nullopt;  // HTTP/1.0 may omit Host; no browser does
}

std::optional<api::Problem> OriginCheck::refusal(const RequestHead& head) const {
    const bool any_host = head.route != nullptr && head.route->any_host;
    if (const auto host = any_host ? std::nullopt : foreign_host(head)) {
        return problem_of(head, 421, "unknown_host",
                          "this server does not answer to the name '" + *host +
                              "' (Host); start it with --host NAME for each of "
                              "its names",
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
