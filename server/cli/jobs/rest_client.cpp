#include "server/cli/jobs/rest_client.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/json.hpp>
#include <boost/url/encode.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>
#include <future>
#include <optional>

#include "distilld_version.hpp"
#include "net/http_connector.hpp"
#include "net/tls_context.hpp"
#include "pipeline/async/deadline.hpp"

namespace distilld::cli {
namespace {

namespace asio = boost::asio;
namespace bhttp = boost::beast::http;
using TlsContext = std::shared_ptr<asio::ssl::context>;
using Connected = std::optional<FetchResult<std::unique_ptr<HttpConnection>>>;  // nullopt: not in time

constexpr std::chrono::seconds kConnectDeadline{10};
constexpr std::chrono::seconds kAnswerDeadline{120};
constexpr std::uint64_t kBodyLimit = 64U << 20;

bool is_about_certificate(const FetchError& failure) {
    return failure.message.find("certificate") != std::string::npos;
}

class HttpRestClient final : public RestClient {
  public:
    HttpRestClient(EndpointUrl url, HostRule rule, TlsContext tls, RestClientOptions options)
        : url_(std::move(url)), rule_(std::move(rule)), tls_(std::move(tls)), options_(std::move(options)) {}

    Result<RestResponse> request(const std::string& method, const std::string& target, const std::string& body,
                                 const Headers& headers) override {
        HttpRequest request = make_request(method, target, headers);
        if (!body.empty()) {
            request.content_type = kJsonContentType;
            request.body = std::make_shared<const std::string>(body);
        }
        request.time_limit = kAnswerDeadline;
        return perform(std::move(request));
    }

    Result<RestResponse> stream(const std::string& target, const Headers& headers, const OnPiece& on_piece,
                                std::chrono::seconds silence) override {
        HttpRequest request = make_request("GET", target, headers);
        request.on_piece = on_piece;
        request.time_limit = silence;
        return perform(std::move(request));
    }

  private:
    static HttpRequest make_request(const std::string& method, const std::string& target, const Headers& headers) {
        HttpRequest request;
        request.method = method;
        request.target = target;
        request.headers = {{"Connection", "close"}};
        for (const auto& [name, value] : headers) {
            request.headers.push_back({name, value});
        }
        request.response_limit = kBodyLimit;
        return request;
    }

    Result<RestResponse> perform(HttpRequest request) {
        asio::io_context context(1);
        HostResolver resolver(context.get_executor(), look_up_host, std::chrono::seconds(0), rule_);
        auto done = asio::co_spawn(context, exchange(resolver, std::move(request)), asio::use_future);
        context.run();
        return done.get();
    }

    [[nodiscard]] Error failed(const std::string& why) const { return io_error(url_.name + ": " + why); }

    asio::awaitable<Connected> connect(HostResolver& resolver, EndpointUrl url, TlsContext tls) const {
        HttpConnector connector(co_await asio::this_coro::executor, resolver, std::move(url), std::move(tls),
                                std::make_shared<TrafficCounters>(), kConnectDeadline);
        co_return co_await with_deadline(connector.connect(), kConnectDeadline);
    }

    [[nodiscard]] Error not_connected(const Connected& tried) const {
        if (!tried) {
            return failed("no answer in time");
        }
        std::string message = tried->error().message;  // begins with the server
        if (message.ends_with(asio::error::make_error_code(asio::error::connection_refused).message())) {
            message += ": is distilld serve running there?";
        } else if (is_about_certificate(tried->error()) && options_.ca.empty()) {
            message += "; --ca FILE or DISTILLD_CA names a file with the authority to trust";
        }
        return io_error(message);
    }

    /// A TLS server answers plain bytes not at all or not in HTTP: finds out whether it speaks TLS.
    asio::awaitable<bool> speaks_tls(HostResolver& resolver) const {
        const auto context = make_tls_client_context();
        if (tls_ || !context) {
            co_return false;
        }
        EndpointUrl url = url_;
        url.tls = true;
        const Connected tried = co_await connect(resolver, std::move(url), *context);
        co_return tried && (*tried || is_about_certificate(tried->error()));
    }

    asio::awaitable<Result<RestResponse>> exchange(HostResolver& resolver, HttpRequest request) const {
        const Connected connected = co_await connect(resolver, url_, tls_);
        if (!connected || !*connected) {
            co_return not_connected(connected);
        }
        const HttpClient client{std::string("distilld/") + kVersion, options_.api_key};
        const std::string head = request_head(request, url_, client);
        BufferPool buffers(kBodyLimit);
        TrafficCounters traffic;
        const HttpExchange answer = co_await (**connected)->exchange(request, head, buffers, traffic);
        if (answer.too_large) {
            co_return failed("the answer is too large");
        }
        if (answer.failure == boost::beast::error::timeout) {
            co_return failed("no answer in time");
        }
        if (answer.failure && answer.response.status == 0) {
            const bool wrong_scheme = co_await speaks_tls(resolver);
            co_return failed(wrong_scheme ? "the server speaks TLS: use https://" : answer.failure.message());
        }
        if (answer.failure) {
            co_return failed(answer.failure.message());
        }
        co_return RestResponse{answer.response.status, answer.response.content_type,
                               std::string(body_text(answer.response))};
    }

    EndpointUrl url_;
    HostRule rule_;
    TlsContext tls_;  ///< none: plain
    RestClientOptions options_;
};

}  // namespace

Result<std::unique_ptr<RestClient>> make_rest_client(const std::string& server, RestClientOptions options) {
    auto url = parse_endpoint_url(server, "/");
    // The URL comes from the user, not from somebody else's spec, so link-local addresses are allowed too.
    auto rule = url ? HostRule::make({url->host, "fe80::/10", "169.254.0.0/16"}) : Result<HostRule>(url.error());
    if (!rule || url->path != "/" || server.find_first_of("?#") != std::string::npos) {
        return invalid_input("--server '" + server + "': http://HOST:PORT or https://HOST:PORT is expected");
    }
    url->name = server;
    TlsContext tls;
    if (url->tls) {
        auto made = make_tls_client_context({options.ca, options.certificate, options.certificate_key});
        if (!made) {
            return made.error();
        }
        tls = std::move(*made);
    }
    return std::unique_ptr<RestClient>(
        std::make_unique<HttpRestClient>(std::move(*url), std::move(*rule), std::move(tls), std::move(options)));
}

std::string describe_problem(const RestResponse& response) {
    namespace json = boost::json;
    const auto reason = bhttp::obsolete_reason(bhttp::int_to_status(response.status));
    std::string text = std::to_string(response.status) + " " + std::string(reason);
    std::string hint;
    boost::system::error_code ec;
    const json::value value = json::parse(response.body, ec);
    const json::object* problem = ec ? nullptr : value.if_object();
    if (response.status == 401) {
        hint = "; --api-key-file FILE or DISTILLD_API_KEY gives a key";
    }
    if (problem == nullptr) {
        return text + hint;
    }
    const auto text_of = [](const json::object& object, const char* name) {
        const json::value* field = object.if_contains(name);
        return field != nullptr && field->is_string() ? std::string(field->get_string()) : std::string();
    };
    if (const auto detail = text_of(*problem, "detail"); !detail.empty()) {
        text += ": " + detail;
    }
    const json::value* errors = problem->if_contains("errors");
    if (errors == nullptr || !errors->is_array()) {
        return text + hint;
    }
    for (const auto& error : errors->get_array()) {
        if (!error.is_object()) {
            continue;
        }
        const std::string line = text_of(error.get_object(), "pointer") + ": " + text_of(error.get_object(), "detail");
        if (text.find(line) == std::string::npos) {
            text += "\n" + line;  // `detail` may list them already
        }
    }
    return text;
}

std::string path_segment(const std::string& text) {
    // A bare dot segment would be resolved on the way.
    return text.find_first_not_of('.') == std::string::npos && !text.empty()
               ? "%2E" + path_segment(text.substr(1))
               : boost::urls::encode(text, boost::urls::unreserved_chars);
}

}  // namespace distilld::cli
