#pragma once

#include <boost/json/value.hpp>

namespace distilld::api {

/// Puts "?…" in place of the query, which may hold a key, of each text in `value` that is a URL.
void hide_url_queries(boost::json::value& value);

}  // namespace distilld::api
