#include "server/http/response_writer.hpp"

#include <array>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <ctime>
#include <string>
#include <utility>

#include "distilld_version.hpp"
#include "pipeline/async/tuple.hpp"

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

template <class Body>
void set_head(bhttp::response<Body>& message, const api::Response& response, const Reply& reply) {
    message.version(reply.version);
    message.result(response.status);
    message.set(bhttp::field::date, http_date());
    message.set(bhttp::field::server, std::string("distilld/") + kVersion);
    if (!has_no_body(response.status) && !response.content_type.empty()) {
        message.set(bhttp::field::content_type, response.content_type);
    }
    message.set("x-request-id", reply.request_id);
    for (const auto& [name, value] : response.headers) {
        message.insert(name, value);
    }
    message.keep_alive(reply.keep_alive);
}

}  // namespace

asio::awaitable<error_code> write_head(Connection& connection, const api::Response& response, const Reply& reply) {
    bhttp::response<bhttp::empty_body> message;
    set_head(message, response, reply);
    if (response.stream && response.content_length) {
        message.content_length(*response.content_length);
    } else if (response.stream && reply.version == 11) {
        message.chunked(true);
    } else if (!response.stream && reply.head) {
        message.content_length(response.body.size());
    }
    bhttp::response_serializer<bhttp::empty_body> serializer(message);
    connection.allow_transfer(0);
    const auto written = co_await bhttp::async_write_header(connection.stream, serializer, kTuple);
    co_return std::get<0>(written);
}

asio::awaitable<error_code> write_response(Connection& connection, api::Response response, const Reply& reply) {
    if (reply.head || has_no_body(response.status)) {
        co_return co_await write_head(connection, response, reply);
    }
    bhttp::response<bhttp::string_body> message;
    set_head(message, response, reply);
    message.body() = std::move(response.body);
    message.prepare_payload();
    connection.allow_transfer(message.body().size());
    const auto written = co_await bhttp::async_write(connection.stream, message, kTuple);
    co_return std::get<0>(written);
}

}  // namespace distilld::http
