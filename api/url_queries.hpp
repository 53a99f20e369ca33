#pragma once

#include <boost/json/value.hpp>

namespace distilld::api {

/// Replaces the query of each URL in `value` with "?…", because it may hold a key.
void hide_url_queries(boost::json::value& value);

}  // namespace distilld::api
