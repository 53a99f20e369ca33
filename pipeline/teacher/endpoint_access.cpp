#include "pipeline/teacher/endpoint_access.hpp"

#include <algorithm>
#include <utility>

#include "distilld_version.hpp"
#include "net/tls_context.hpp"

namespace distilld {

Error at_endpoint(const std::string& section, std::size_t index, const Error& error) {
    return {error.kind, section + "/endpoints/" + std::to_string(index) + ": " + error.message};
}

Result<EndpointAccess> make_endpoint_access(EndpointAccessWish wish) {
    EndpointAccess access;
    access.pool.user_agent = std::string("distilld/") + kVersion;
    access.pool.idle_limit = wish.idle_limit;
    access.pool.bearer = std::move(wish.bearer);
    for (const std::string& text : wish.endpoints) {
        auto url = parse_endpoint_url(text, wish.default_path);
        if (!url) {
            return at_endpoint(wish.section, access.urls.size(), url.error());
        }
        if (wish.complete_path != nullptr) {
            url->path = wish.complete_path(std::move(url->path));
            url->name = url->page(url->path);
        }
        access.urls.push_back(std::move(*url));
    }
    // Reading the system's certificates takes tens of milliseconds, so they are read only when needed.
    if (!wish.ca_file.empty() || std::ranges::any_of(access.urls, &EndpointUrl::tls)) {
        auto made = make_tls_client_context({.ca = wish.ca_file});
        if (!made) {
            return Error{made.error().kind, wish.section + "/ca_file: " + made.error().message};
        }
        access.tls = std::move(*made);
    }
    return access;
}

}  // namespace distilld
