#include "server/http/router.hpp"

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <stdexcept>

namespace distilld::http {

Result<Target> parse_target(std::string_view text) {
    namespace urls = boost::urls;
    const auto origin = urls::parse_origin_form(text);
    urls::url_view view;
    if (origin.has_value()) {
        view = *origin;
    } else {
        // RFC 9112 §3.2.2: a server must accept the absolute form, too.
        const auto absolute = urls::parse_absolute_uri(text);
        if (!absolute.has_value() || !absolute->has_authority()) {
            return invalid_input("the request target is not a path with an optional query");
        }
        view = *absolute;
    }
    Target target;
    target.path = view.path();
    target.authority = std::string(view.encoded_authority());
    if (target.path.empty()) {
        target.path = "/";
    }
    for (const auto& segment : view.segments()) {
        target.segments.emplace_back(segment);
    }
    if (target.segments.empty()) {
        target.segments.emplace_back();
    }
    for (const auto& parameter : view.params()) {
        target.query.emplace_back(parameter.key, parameter.value);
    }
    return target;
}

Router::Router(std::vector<Route> routes) {
    for (auto& route : routes) {
        if (route.pattern.empty() || route.pattern.front() != '/') {
            throw std::invalid_argument("route pattern '" + route.pattern + "' does not start with '/'");
        }
        Entry entry;
        std::string_view rest = std::string_view(route.pattern).substr(1);
        for (;;) {
            const std::size_t end = std::min(rest.find('/'), rest.size());
            const std::string_view part = rest.substr(0, end);
            const bool parameter = part.size() > 2 && part.front() == '{' && part.back() == '}';
            if (!parameter && part.find_first_of("{}") != std::string_view::npos) {
                throw std::invalid_argument("route pattern '" + route.pattern + "': a parameter is a whole segment");
            }
            entry.segments.push_back({std::string(parameter ? part.substr(1, part.size() - 2) : part), parameter});
            if (end == rest.size()) {
                break;
            }
            rest.remove_prefix(end + 1);
        }
        entry.route = std::move(route);
        for (const auto& other : entries_) {
            if (other.route.method == entry.route.method && other.route.pattern == entry.route.pattern) {
                throw std::invalid_argument("two routes for " + entry.route.method + " " + entry.route.pattern);
            }
        }
        entries_.push_back(std::move(entry));
    }
    std::sort(entries_.begin(), entries_.end(), more_literal);
}

bool Router::more_literal(const Entry& left, const Entry& right) {
    return std::lexicographical_compare(left.segments.begin(), left.segments.end(), right.segments.begin(),
                                        right.segments.end(), [](const Segment& a, const Segment& b) {
                                            return static_cast<int>(a.parameter) < static_cast<int>(b.parameter);
                                        });
}

bool Router::matches(const Entry& entry, const std::vector<std::string>& segments) {
    if (entry.segments.size() != segments.size()) {
        return false;
    }
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const Segment& wanted = entry.segments[i];
        if (wanted.parameter ? segments[i].empty() : wanted.text != segments[i]) {
            return false;
        }
    }
    return true;
}

RouteMatch Router::find(std::string_view method, const std::vector<std::string>& segments) const {
    RouteMatch match;
    const Entry* found = nullptr;
    const Entry* get = nullptr;
    for (const auto& entry : entries_) {
        if (!matches(entry, segments)) {
            continue;
        }
        if (entry.route.method == method && found == nullptr) {
            found = &entry;
        }
        if (entry.route.method == "GET" && get == nullptr) {
            get = &entry;
        }
        match.open = entry.route.right == Right::nothing && (match.open || match.allowed.empty());
        match.allowed.push_back(entry.route.method);
    }
    if (found == nullptr && method == "HEAD") {
        found = get;
    }
    if (found == nullptr) {
        if (get != nullptr) {
            match.allowed.emplace_back("HEAD");
        }
        std::sort(match.allowed.begin(), match.allowed.end());
        match.allowed.erase(std::unique(match.allowed.begin(), match.allowed.end()), match.allowed.end());
        return match;
    }
    match.allowed.clear();
    match.route = &found->route;
    match.open = found->route.right == Right::nothing;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        if (found->segments[i].parameter) {
            match.parameters.emplace_back(found->segments[i].text, segments[i]);
        }
    }
    return match;
}

}  // namespace distilld::http
