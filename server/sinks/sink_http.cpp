#include "server/sinks/sink_http.hpp"

#include <openssl/evp.h>

#include <boost/json/parse.hpp>
#include <boost/url/encode.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>
#include <utility>

#include "base/json_text.hpp"
#include "distilld_version.hpp"
#include "net/http_failure.hpp"
#include "net/tls_context.hpp"
#include "pipeline/async/deadline.hpp"

namespace distilld::sinks {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

constexpr std::uint64_t kMaxReplyBytes = std::uint64_t{4} << 20U;
constexpr std::size_t kMaxReplyDepth = 32;

HttpPoolOptions pool_options(const SinkHttpOptions& options) {
    HttpPoolOptions made;
    made.user_agent = std::string("distilld/") + kVersion;
    made.bearer = options.bearer;
    made.max_idle = 1;
    return made;
}

HttpReply read(const HttpResponse& response, const std::string& page) {
    HttpReply reply;
    reply.status = response.status;
    reply.retry_after = response.retry_after;
    if (const auto body = parse_json_text(body_text(response), kMaxReplyDepth); body && body->is_object()) {
        reply.body = body->get_object();
    }
    if (!is_success(response)) {
        const std::string said = error_text(body_text(response));
        reply.trouble = page + ": HTTP " + std::to_string(response.status) + (said.empty() ? "" : ": " + said);
    }
    return reply;
}

}  // namespace

SinkHttp::SinkHttp(asio::any_io_executor thread, EndpointUrl url, std::shared_ptr<asio::ssl::context> tls,
                   SinkHttpOptions options)
    : base_path_(url.path == "/" ? std::string() : url.path),
      options_(std::move(options)),
      resolver_(thread),
      pool_(thread, resolver_, std::move(url), std::move(tls), std::make_shared<BufferPool>(kMaxReplyBytes),
            std::make_shared<TrafficCounters>(), pool_options(options_)) {
    while (base_path_.ends_with('/')) {
        base_path_.pop_back();
    }
}

asio::awaitable<HttpReply> SinkHttp::post(std::string path, json::value body) {
    HttpRequest request;
    request.content_type = kJsonContentType;
    request.body = std::make_shared<const std::string>(to_text(body));
    return send(std::move(request), std::move(path));
}

asio::awaitable<HttpReply> SinkHttp::get(std::string path) {
    return send(make_get(std::string()), std::move(path));
}

asio::awaitable<HttpReply> SinkHttp::send(HttpRequest request, std::string path) {
    request.target = base_path_ + path;
    if (request.target.empty()) {
        request.target = "/";
    }
    request.headers = options_.headers;
    request.response_limit = kMaxReplyBytes;
    const std::string page = pool_.url().page(request.target);
    const std::optional<FetchResult<HttpResponse>> answer =
        co_await with_deadline(pool_.request(std::move(request)), options_.deadline);
    HttpReply reply;
    if (!answer) {
        reply.trouble = page + ": no answer within " + number_text(to_seconds(options_.deadline)) + " s";
    } else if (!*answer) {
        reply.trouble = answer->error().message;
    } else {
        reply = read(**answer, page);
    }
    co_return reply;
}

SinkFailure failure_of(const HttpReply& reply) {
    const bool again = reply.status == 0 || reply.status == 408 || reply.status == 429 || reply.status >= 500;
    return SinkFailure{reply.trouble, !again, reply.retry_after};
}

Result<std::unique_ptr<SinkHttp>> make_sink_http(asio::any_io_executor thread, SinkHttpOptions options) {
    Result<EndpointUrl> url = parse_endpoint_url(options.url, "/");
    if (!url) {
        return invalid_input(options.field + ": '" + options.url + "' is not a URL such as http://127.0.0.1:5000");
    }
    url->query.clear();
    std::shared_ptr<asio::ssl::context> tls;
    if (url->tls) {
        auto made = make_tls_client_context();
        if (!made) {
            return Error{made.error().kind, options.field + ": " + made.error().message};
        }
        tls = std::move(*made);
    }
    return std::make_unique<SinkHttp>(std::move(thread), std::move(*url), std::move(tls), std::move(options));
}

std::string percent_encoded(std::string_view text) {
    return boost::urls::encode(text, boost::urls::unreserved_chars);
}

std::string basic_authorization(const std::string& user, const std::string& password) {
    const std::string plain = user + ":" + password;
    std::string encoded(4 * ((plain.size() + 2) / 3) + 1, '\0');
    const int length =
        ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                          reinterpret_cast<const unsigned char*>(plain.data()), static_cast<int>(plain.size()));
    encoded.resize(static_cast<std::size_t>(length));
    return "Basic " + encoded;
}

}  // namespace distilld::sinks
