#include "tests/support/scripted_http_server.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace distilld::test {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

namespace {

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return text;
}

std::string head_of(const ScriptedReply& reply) {
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " " +
                       std::string(http::obsolete_reason(http::int_to_status(reply.status))) + "\r\n";
    for (const auto& [name, value] : reply.headers) {
        head += name + ": " + value + "\r\n";
    }
    head += reply.chunked ? std::string("Transfer-Encoding: chunked\r\n")
                          : "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
    return head + "\r\n";
}

std::string chunks_of(const std::string& body) {
    std::string chunks;
    for (std::size_t at = 0; at < body.size(); at += 1000) {
        const std::string piece = body.substr(at, 1000);
        char size[32];
        std::snprintf(size, sizeof(size), "%zx\r\n", piece.size());
        chunks += size + piece + "\r\n";
    }
    return chunks + "0\r\n\r\n";
}

std::string pem_of(const std::function<int(BIO*)>& write) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), &BIO_free);
    if (write(bio.get()) != 1) {
        throw std::runtime_error("cannot write PEM");
    }
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<std::size_t>(size)};
}

}  // namespace

TlsIdentity make_self_signed_identity(const std::string& host, bool with_loopback_address) {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 24 * 3600);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* name = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(host.c_str()), -1, -1,
                               0);
    X509_set_issuer_name(certificate.get(), name);
    const std::string names = "DNS:" + host + (with_loopback_address ? ",IP:127.0.0.1" : "");
    for (const auto& [kind, value] : {std::pair<int, std::string>(NID_subject_alt_name, names),
                                      std::pair<int, std::string>(NID_basic_constraints, "critical,CA:TRUE")}) {
        X509V3_CTX context;
        X509V3_set_ctx_nodb(&context);
        X509V3_set_ctx(&context, certificate.get(), certificate.get(), nullptr, nullptr, 0);
        X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
        X509_add_ext(certificate.get(), extension, -1);
        X509_EXTENSION_free(extension);
    }
    if (X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) {
        throw std::runtime_error("cannot sign a certificate");
    }
    TlsIdentity identity;
    identity.certificate_pem = pem_of([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); });
    identity.key_pem = pem_of(
        [&](BIO* bio) { return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
    return identity;
}

struct ScriptedHttpServer::Implementation {
    Implementation(Handler the_handler, std::optional<TlsIdentity> identity, std::uint16_t port)
        : handler(std::move(the_handler)), acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), port)) {
        if (identity) {
            tls.emplace(asio::ssl::context::tls_server);
            tls->use_certificate_chain(asio::buffer(identity->certificate_pem));
            tls->use_private_key(asio::buffer(identity->key_pem), asio::ssl::context::pem);
        }
        accepting = std::thread([this] { accept(); });
    }

    ~Implementation() {
        {
            const std::lock_guard lock(mutex);
            stopping = true;
            for (const int handle : open_sockets) {
                ::shutdown(handle, SHUT_RDWR);
            }
        }
        stopped.notify_all();
        ::shutdown(acceptor.native_handle(), SHUT_RDWR);
        accepting.join();
        for (std::thread& connection : connections) {
            connection.join();
        }
    }

    void accept() {
        for (;;) {
            tcp::socket socket(io);
            error_code failed;
            acceptor.accept(socket, failed);
            const std::lock_guard lock(mutex);
            if (failed || stopping) {
                return;
            }
            const std::size_t number = connections.size();
            open_sockets.insert(socket.native_handle());
            connections.emplace_back([this, number, owned = std::move(socket)]() mutable {
                const int handle = owned.native_handle();
                serve(std::move(owned), number, handle);
            });
        }
    }

    void serve(tcp::socket socket, std::size_t number, int handle) {
        if (tls) {
            asio::ssl::stream<tcp::socket&> stream(socket, *tls);
            error_code failed;
            stream.handshake(asio::ssl::stream_base::server, failed);
            if (!failed) {
                talk(stream, socket, number);
            }
        } else {
            talk(socket, socket, number);
        }
        const std::lock_guard lock(mutex);
        open_sockets.erase(handle);
        error_code ignored;
        socket.close(ignored);
    }

    template <class Stream>
    void talk(Stream& stream, tcp::socket& socket, std::size_t number) {
        beast::flat_buffer buffer;
        for (;;) {
            http::request_parser<http::string_body> parser;
            parser.body_limit(std::uint64_t{64} << 20U);
            error_code failed;
            http::read(stream, buffer, parser, failed);
            if (failed) {
                return;
            }
            const auto& message = parser.get();
            SeenRequest request;
            request.method = std::string(message.method_string());
            request.target = std::string(message.target());
            for (const auto& field : message) {
                request.headers[lower(std::string(field.name_string()))] = std::string(field.value());
            }
            request.body = message.body();
            request.connection = number;
            ScriptedReply reply;
            {
                std::unique_lock lock(mutex);
                seen.push_back(request);
                reply = handler(request);
                if (stopped.wait_for(lock, reply.delay, [this] { return stopping; })) {
                    return;
                }
            }
            if (!send(stream, socket, reply)) {
                return;
            }
        }
    }

    /// False = the connection ends here.
    template <class Stream>
    bool send(Stream& stream, tcp::socket& socket, const ScriptedReply& reply) {
        error_code failed;
        if (reply.reset) {
            socket.set_option(asio::socket_base::linger(true, 0), failed);
            socket.close(failed);
            return false;
        }
        std::string message = reply.raw ? *reply.raw : head_of(reply);
        if (!reply.raw) {
            const std::string body = reply.chunked ? chunks_of(reply.body) : reply.body;
            message += body.substr(0, reply.cut_after.value_or(body.size()));
        }
        asio::write(stream, asio::buffer(message), failed);
        return !failed && !reply.raw && !reply.cut_after && !reply.close_after;
    }

    Handler handler;
    asio::io_context io;
    tcp::acceptor acceptor;
    std::optional<asio::ssl::context> tls;
    mutable std::mutex mutex;
    std::condition_variable stopped;
    bool stopping = false;
    std::set<int> open_sockets;
    std::vector<SeenRequest> seen;
    std::vector<std::thread> connections;
    std::thread accepting;
};

ScriptedHttpServer::ScriptedHttpServer(Handler handler, std::optional<TlsIdentity> tls, std::uint16_t port)
    : implementation_(std::make_unique<Implementation>(std::move(handler), std::move(tls), port)) {}

ScriptedHttpServer::~ScriptedHttpServer() = default;

std::uint16_t ScriptedHttpServer::port() const {
    return implementation_->acceptor.local_endpoint().port();
}

std::string ScriptedHttpServer::url(const std::string& path) const {
    return (implementation_->tls ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port()) + path;
}

std::vector<SeenRequest> ScriptedHttpServer::requests() const {
    const std::lock_guard lock(implementation_->mutex);
    return implementation_->seen;
}

std::size_t ScriptedHttpServer::connections() const {
    const std::lock_guard lock(implementation_->mutex);
    return implementation_->connections.size();
}

}  // namespace distilld::test
