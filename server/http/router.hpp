#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "server/http/http_server.hpp"

namespace distilld::http {

/// The parsed target of a request line.
struct Target {
    std::string path;                   ///< percent-decoded
    std::string authority;              ///< "host:port" of the absolute form; otherwise empty
    std::vector<std::string> segments;  ///< percent-decoded individually: %2F stays inside its segment
    std::vector<std::pair<std::string, std::string>> query;  ///< percent-decoded; '+' is a space
};

/// Parses "/path?query" or "http://host/path?query". Anything else is an invalid_input error.
Result<Target> parse_target(std::string_view text);

/// The result of a lookup in the routing table.
struct RouteMatch {
    const Route* route = nullptr;  ///< null: the path or the method is unknown
    std::vector<std::pair<std::string, std::string>> parameters;
    std::vector<std::string> allowed;  ///< methods of the path if `route` is null; empty: unknown path (404)
    bool open = false;                 ///< open to all (Right::nothing): the route or, without one, the whole path
};

/// The routing table. Literal segments win over {name} segments, left to right. A HEAD without a route of its own is
/// answered by the GET route. Immutable, any thread.
class Router {
  public:
    /// Throws std::invalid_argument for a pattern that is not a path, and for two routes with equal method and pattern.
    explicit Router(std::vector<Route> routes);

    [[nodiscard]] RouteMatch find(std::string_view method, const std::vector<std::string>& segments) const;

  private:
    struct Segment {
        std::string text;  ///< the literal, or the name of the parameter
        bool parameter = false;
    };
    struct Entry {
        Route route;
        std::vector<Segment> segments;
    };
    static bool matches(const Entry& entry, const std::vector<std::string>& segments);
    static bool more_literal(const Entry& left, const Entry& right);

    std::vector<Entry> entries_;
};

}  // namespace distilld::http
