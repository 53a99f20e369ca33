#pragma once

#include <vector>

#include "api/page.hpp"
#include "server/http/http_server.hpp"

namespace distilld {

/// The built-in page at "/" (no such route if `page` is null), and /v1/spec, the table of spec fields behind its form.
/// `page` must outlive the routes.
std::vector<http::Route> make_page_routes(const api::Page* page);

}  // namespace distilld
