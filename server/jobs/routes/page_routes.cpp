#include "server/jobs/routes/page_routes.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "api/spec_docs.hpp"
#include "base/ascii.hpp"
#include "base/json_text.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/query_reader.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using http::Request;
using http::Response;

/// Calls `visit` with each element of a header field that is a comma-separated list.
template <class Visit>
void each_element(std::string_view field, Visit visit) {
    while (!field.empty()) {
        const auto end = std::min(field.find(','), field.size());
        visit(trimmed(field.substr(0, end)));
        field.remove_prefix(std::min(end + 1, field.size()));
    }
}

/// Whether `Accept-Encoding` allows gzip: named, and not with a weight of zero.
bool takes_gzip(const Request& request) {
    bool takes = false;
    each_element(request.header("accept-encoding").value_or(""), [&](std::string_view element) {
        const auto coding = trimmed(element.substr(0, element.find(';')));
        if (coding != "gzip" && coding != "x-gzip") {
            return;
        }
        takes = true;
        if (const auto weight = element.find("q="); weight != std::string_view::npos) {
            double value = 1;
            const auto text = element.substr(weight + 2);
            std::from_chars(text.data(), text.data() + text.size(), value);
            takes = value > 0;
        }
    });
    return takes;
}

/// The packed form needs another tag, because its bytes differ.
std::string packed_tag(std::string_view etag) {
    return std::string(etag.substr(0, etag.size() - 1)) + "-gzip\"";
}

bool has_already(const Request& request, std::string_view etag) {
    bool has = false;
    each_element(request.header("if-none-match").value_or(""), [&](std::string_view element) {
        if (element.starts_with("W/")) {
            element.remove_prefix(2);
        }
        has = has || element == etag || element == "*";
    });
    return has;
}

class PageApi {
  public:
    explicit PageApi(const api::Page* page) : page_(page) {}

    asio::awaitable<Response> page(Request request) {
        check_query(request, {});
        const bool packed = takes_gzip(request);
        const std::string etag = packed ? packed_tag(page_->etag) : std::string(page_->etag);
        Response response;
        response.content_type = "text/html; charset=utf-8";
        response.headers = {{"ETag", etag},
                            // The browser asks each time whether the page is still that of the running program.
                            {"Cache-Control", "no-cache"},
                            {"Vary", "Accept-Encoding"},
                            {"Content-Security-Policy", std::string(page_->policy)},
                            {"X-Content-Type-Options", "nosniff"},
                            {"X-Frame-Options", "DENY"},
                            {"Referrer-Policy", "no-referrer"},
                            {"Cross-Origin-Opener-Policy", "same-origin"},
                            {"Cross-Origin-Resource-Policy", "same-origin"}};
        if (has_already(request, etag)) {
            response.status = 304;
            co_return response;
        }
        if (packed) {
            response.headers.emplace_back("Content-Encoding", "gzip");
        }
        response.body = packed ? page_->gzip : page_->html;
        co_return response;
    }

    asio::awaitable<Response> spec(Request request) {
        check_query(request, {});
        boost::json::object schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "JobSpec"}};
        for (auto& member : api::job_spec_schema(api::spec_table(), "#")) {
            schema[member.key()] = std::move(member.value());
        }
        co_return json_response(200, schema);
    }

  private:
    const api::Page* page_;
};

}  // namespace

std::vector<http::Route> make_page_routes(const api::Page* page) {
    const auto api = std::make_shared<PageApi>(page);
    std::vector<http::Route> routes{api_route(api, "GET", "/v1/spec", &PageApi::spec)};
    if (page != nullptr) {
        auto row = api_route(api, "GET", "/", &PageApi::page);
        row.right = http::Right::nothing;  // shows nothing of this service, and asks for a key itself
        routes.push_back(std::move(row));
    }
    return routes;
}

}  // namespace distilld
