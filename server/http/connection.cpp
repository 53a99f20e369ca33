#include "server/http/connection.hpp"

#include <utility>

namespace distilld::http {
namespace {

constexpr std::size_t kMaxBufferBytes = 256U << 10;
/// A transfer may take kTransferBase plus the time for its size at this rate.
constexpr std::uint64_t kMinBytesPerSecond = 64U << 10;
constexpr std::chrono::seconds kTransferBase{30};

}  // namespace

Connection::Connection(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls)
    : stream(std::move(socket), tls), buffer(kMaxBufferBytes) {
    boost::system::error_code ec;
    stream.socket().set_option(boost::asio::ip::tcp::no_delay(true), ec);
    const auto peer = stream.socket().remote_endpoint(ec);
    if (!ec) {
        remote = peer.address().to_string();
    }
}

std::chrono::seconds Connection::transfer_time(std::uint64_t bytes) {
    return kTransferBase + std::chrono::seconds(bytes / kMinBytesPerSecond);
}

void Connection::allow_transfer(std::uint64_t bytes) {
    stream.expires_after(transfer_time(bytes));
}

}  // namespace distilld::http
