#include "server/cli/rest_client.hpp"

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <boost/url/encode.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>
#include <boost/url/url_view.hpp>
#include <exception>
#include <optional>

#include "distilld_version.hpp"
#include "net/http_reader.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/http/tls_context.hpp"

namespace distilld::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kConnectDeadline{10};
constexpr std::chrono::seconds kAnswerDeadline{120};
constexpr std::uint64_t kBodyLimit = 64U << 20;
constexpr std::size_t kPiece = 16U << 10;
constexpr std::size_t kMaxHeaderBytes = 64U << 10;

struct Order {
    bhttp::request<bhttp::string_body> message;
    const RestClient::OnPiece* on_piece = nullptr;  ///< set: stream
    std::chrono::seconds silence{0};
};

class BeastClient final : public RestClient {
  public:
    BeastClient(std::string url, std::string host, std::string port, std::string authority,
                std::shared_ptr<asio::ssl::context> tls, RestClientOptions options)
        : url_(std::move(url)),
          host_(std::move(host)),
          port_(std::move(port)),
          authority_(std::move(authority)),
          tls_(std::move(tls)),
          options_(std::move(options)) {}

    Result<RestResponse> request(const std::string& method, const std::string& target, const std::string& body,
                                 const Headers& headers) override {
        Order order;
        order.message = message(method, target, headers);
        if (!body.empty()) {
            order.message.set(bhttp::field::content_type, "application/json");
        }
        order.message.body() = body;
        order.message.prepare_payload();
        return perform(std::move(order));
    }

    Result<RestResponse> stream(const std::string& target, const Headers& headers, const OnPiece& on_piece,
                                std::chrono::seconds silence) override {
        Order order;
        order.message = message("GET", target, headers);
        order.on_piece = &on_piece;
        order.silence = silence;
        return perform(std::move(order));
    }

  private:
    [[nodiscard]] bhttp::request<bhttp::string_body> message(const std::string& method, const std::string& target,
                                                             const Headers& headers) const {
        bhttp::request<bhttp::string_body> request;
        request.method_string(method);
        request.target(target);
        request.version(11);
        request.set(bhttp::field::host, authority_);
        request.set(bhttp::field::user_agent, std::string("distilld/") + kVersion);
        if (!options_.api_key.empty()) {
            request.set(bhttp::field::authorization, "Bearer " + options_.api_key);
        }
        for (const auto& [name, value] : headers) {
            request.set(name, value);
        }
        request.keep_alive(false);
        return request;
    }

    Result<RestResponse> perform(Order order) {
        asio::io_context context(1);
        std::optional<Result<RestResponse>> result;
        std::exception_ptr thrown;
        auto done = [&](const std::exception_ptr& failure, Result<RestResponse> outcome) {
            thrown = failure;
            result = std::move(outcome);
        };
        asio::co_spawn(context, exchange(std::move(order)), done);
        context.run();
        if (thrown) {
            std::rethrow_exception(thrown);
        }
        return std::move(*result);
    }

    [[nodiscard]] Error failed(const error_code& ec) const {
        return io_error(url_ + ": " + (ec == beast::error::timeout ? "no answer in time" : ec.message()) +
                        (ec == asio::error::connection_refused ? ": is distilld serve running there?" : ""));
    }

    [[nodiscard]] Error no_handshake(const net::HandshakeResult& shaken) const {
        std::string hint;
        if (shaken.why.find("certificate") != std::string::npos && options_.ca.empty()) {
            hint = "; --ca FILE or DISTILLD_CA names a file with the authority that is to be trusted";
        }
        return io_error(url_ + ": TLS handshake failed: " + shaken.why + hint);
    }

    /// An answer to a request that was not encrypted did not come. Whether the server speaks TLS is asked, for what
    /// such a server does with other bytes differs.
    asio::awaitable<Error> no_answer(error_code ec, tcp::resolver::results_type addresses) {
        const auto context = http::make_tls_client_context({}, {}, {});
        if (tls_ || ec == beast::error::timeout || !context) {
            co_return failed(ec);
        }
        beast::tcp_stream tcp(co_await asio::this_coro::executor);
        tcp.expires_after(kConnectDeadline);
        const auto connected = co_await tcp.async_connect(addresses, kTuple);
        if (std::get<0>(connected)) {
            co_return failed(ec);
        }
        net::ByteStream stream(tcp.release_socket(), context->get());
        stream.expires_after(kConnectDeadline);
        const auto shaken = co_await stream.handshake_with(host_);
        const bool secure = !shaken.failure || shaken.why.find("certificate") != std::string::npos;
        co_return secure ? io_error(url_ + ": the server speaks TLS: use https://") : failed(ec);
    }

    asio::awaitable<Result<RestResponse>> exchange(Order order) {
        const auto executor = co_await asio::this_coro::executor;
        tcp::resolver resolver(executor);
        const auto resolved = co_await resolver.async_resolve(host_, port_, kTuple);
        if (std::get<0>(resolved)) {
            co_return failed(std::get<0>(resolved));
        }
        beast::tcp_stream tcp(executor);
        tcp.expires_after(kConnectDeadline);
        const auto connected = co_await tcp.async_connect(std::get<1>(resolved), kTuple);
        if (std::get<0>(connected)) {
            co_return failed(std::get<0>(connected));
        }
        net::ByteStream stream(tcp.release_socket(), tls_.get());
        if (stream.is_secure()) {
            stream.expires_after(kConnectDeadline);
            const auto shaken = co_await stream.handshake_with(host_);
            if (shaken.failure) {
                co_return no_handshake(shaken);
            }
        }

        stream.expires_after(kAnswerDeadline);
        const auto written = co_await bhttp::async_write(stream, order.message, kTuple);
        if (std::get<0>(written)) {
            co_return failed(std::get<0>(written));
        }
        beast::flat_buffer buffer;
        const auto reader = net::make_answer_reader(kMaxHeaderBytes);
        const error_code no_head = co_await reader->read_head(stream, buffer);
        if (no_head) {
            co_return co_await no_answer(no_head, std::get<1>(resolved));
        }

        RestResponse response;
        response.status = reader->head().status;
        response.content_type = std::string(reader->head().value("Content-Type"));
        const bool streamed = order.on_piece != nullptr && response.status == 200;
        std::array<char, kPiece> piece{};
        while (!reader->done()) {
            if (streamed) {
                stream.expires_after(order.silence);
            }
            const auto read = co_await reader->read_body(stream, buffer, piece);
            if (read.failure) {
                co_return failed(read.failure);
            }
            const std::string_view bytes(piece.data(), read.bytes);
            if (bytes.empty()) {
                continue;
            }
            if (streamed) {
                if (!(*order.on_piece)(bytes)) {
                    break;
                }
                continue;
            }
            if (response.body.size() + bytes.size() > kBodyLimit) {
                co_return io_error(url_ + ": the answer is too large");
            }
            response.body.append(bytes);
        }
        co_return response;
    }

    std::string url_;
    std::string host_;
    std::string port_;
    std::string authority_;
    std::shared_ptr<asio::ssl::context> tls_;  ///< none: plain
    RestClientOptions options_;
};

}  // namespace

Result<std::unique_ptr<RestClient>> make_rest_client(const std::string& server, RestClientOptions options) {
    const auto wrong = [&server](const std::string& why) {
        return invalid_input("--server '" + server + "': " + why +
                             "; http://HOST:PORT or https://HOST:PORT is expected");
    };
    const auto parsed = boost::urls::parse_uri(server);
    if (!parsed) {
        return wrong("not a URL");
    }
    const bool secure = parsed->scheme() == "https";
    if (!secure && parsed->scheme() != "http") {
        return wrong("not http or https");
    }
    const std::string host(parsed->host_address());
    if (host.empty()) {
        return wrong("no host");
    }
    if (parsed->has_userinfo() || parsed->has_query() || parsed->has_fragment() ||
        (parsed->encoded_path() != "" && parsed->encoded_path() != "/")) {
        return wrong("more than host and port");
    }
    const std::string port = parsed->has_port() && !parsed->port().empty() ? std::string(parsed->port())
                             : secure                                      ? "443"
                                                                           : "80";
    const std::string authority(parsed->encoded_host_and_port());
    std::shared_ptr<asio::ssl::context> tls;
    if (secure) {
        auto made = http::make_tls_client_context(options.ca, options.certificate, options.certificate_key);
        if (!made) {
            return made.error();
        }
        tls = std::move(*made);
    }
    return std::unique_ptr<RestClient>(
        std::make_unique<BeastClient>(server, host, port, authority, std::move(tls), std::move(options)));
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
    // A bare dot segment would be resolved away on the way.
    return text.find_first_not_of('.') == std::string::npos && !text.empty()
               ? "%2E" + path_segment(text.substr(1))
               : boost::urls::encode(text, boost::urls::unreserved_chars);
}

}  // namespace distilld::cli
