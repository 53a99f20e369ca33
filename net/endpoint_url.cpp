#include "net/endpoint_url.hpp"

#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>

namespace distilld {

std::string EndpointUrl::page(std::string_view other_target) const {
    return std::string(tls ? "https://" : "http://") + host_header +
           std::string(other_target.substr(0, other_target.find('?')));
}

Result<EndpointUrl> parse_endpoint_url(const std::string& url, const std::string& default_path) {
    namespace urls = boost::urls;
    const auto fail = [&](const std::string& why) { return invalid_input("teacher endpoint '" + url + "' " + why); };
    const auto parsed = urls::parse_uri(url);
    if (!parsed) {
        return fail("is not a URL such as http://127.0.0.1:8000");
    }
    const urls::url_view& view = *parsed;
    EndpointUrl endpoint;
    if (view.scheme_id() == urls::scheme::https) {
        endpoint.tls = true;
    } else if (view.scheme_id() != urls::scheme::http) {
        return fail("has a scheme other than http and https");
    }
    if (view.has_userinfo()) {
        return fail("contains credentials: name an environment variable in /teacher/api_key_env instead");
    }
    endpoint.host = view.host_type() == urls::host_type::ipv6 ? view.host_address() : view.host();
    if (endpoint.host.empty()) {
        return fail("has no host");
    }
    const bool stated_port = view.has_port() && !view.port().empty();
    if (stated_port && view.port_number() == 0) {
        return fail("has a port that is not between 1 and 65535");
    }
    endpoint.port = stated_port ? view.port_number() : static_cast<std::uint16_t>(endpoint.tls ? 443 : 80);
    endpoint.host_header = std::string(view.encoded_host());
    if (stated_port) {
        endpoint.host_header += ":" + std::to_string(endpoint.port);
    }
    endpoint.path = std::string(view.encoded_path());
    if (endpoint.path.empty() || endpoint.path == "/") {
        endpoint.path = default_path;
    }
    if (view.has_query()) {
        endpoint.query = "?" + std::string(view.encoded_query());
    }
    endpoint.name = endpoint.page(endpoint.path);
    return endpoint;
}

}  // namespace distilld
