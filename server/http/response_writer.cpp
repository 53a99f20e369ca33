#include "server/http/response_writer.hpp"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>
#include <string>
#include <string_view>

#include "distilld_version.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
namespace bhttp = boost::beast::http;
using boost::system::error_code;

std::string http_date() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 64> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return {text.data(), size};
}

bool has_no_body(unsigned status) {
    return status == 204 || status == 304;
}

/// Status line and fields, with the final empty line.
std::string head_of(const http::Response& response, const Reply& reply) {
    const bool modern = reply.version == 11;
    const auto reason = bhttp::obsolete_reason(bhttp::int_to_status(response.status));
    std::string head = modern ? "HTTP/1.1 " : "HTTP/1.0 ";
    head += std::to_string(response.status) + " " + std::string(reason) + "\r\n";
    const auto add = [&head](std::string_view name, std::string_view value) {
        head.append(name).append(": ").append(value).append("\r\n");
    };
    add("Date", http_date());
    add("Server", std::string("distilld/") + kVersion);
    if (!has_no_body(response.status) && !response.content_type.empty()) {
        add("Content-Type", response.content_type);
    }
    add("x-request-id", reply.request_id);
    for (const auto& [name, value] : response.headers) {
        add(name, value);
    }
    if (reply.keep_alive != modern) {
        add("Connection", modern ? "close" : "keep-alive");
    }
    if (response.stream) {
        if (response.content_length) {
            add("Content-Length", std::to_string(*response.content_length));
        } else if (modern) {
            add("Transfer-Encoding", "chunked");
        }
    } else if (reply.head || !has_no_body(response.status)) {
        add("Content-Length", std::to_string(response.body.size()));
    }
    return head + "\r\n";
}

}  // namespace

asio::awaitable<error_code> write_response(Connection& connection, const http::Response& response, const Reply& reply) {
    const std::string head = head_of(response, reply);
    asio::const_buffer body;
    if (!response.stream && !reply.head && !has_no_body(response.status)) {
        body = asio::buffer(response.body);
    }
    connection.allow_transfer(body.size());
    const auto written = co_await connection.stream.write(asio::buffer(head), body);
    co_return written.failure;
}

}  // namespace distilld::http
