#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distilld::test {

/// What the server does with one request.
struct ScriptedReply {
    unsigned status = 200;
    std::vector<std::pair<std::string, std::string>> headers{};
    std::string body{};
    std::chrono::milliseconds delay{0};      ///< before answering; ends early when the server stops
    bool reset = false;                      ///< closes the connection with RST instead of answering
    bool chunked = false;                    ///< Transfer-Encoding: chunked, in pieces of 1000 bytes
    bool close_after = false;                ///< closes after the answer without having announced it
    std::optional<std::size_t> cut_after{};  ///< sends so many body bytes, then closes
    std::optional<std::string> raw{};        ///< sent instead of an HTTP answer, then closes
};

struct SeenRequest {
    std::string method;
    std::string target;
    std::map<std::string, std::string> headers;  ///< names in lower case
    std::string body;
    std::size_t connection = 0;  ///< number of the connection, from 0
};

struct TlsIdentity {
    std::string certificate_pem;
    std::string key_pem;
};

/// A self-signed certificate for a host name and 127.0.0.1.
[[nodiscard]] TlsIdentity make_self_signed_identity(const std::string& host, bool with_loopback_address = true);

/// An HTTP/1.1 server on 127.0.0.1 with a thread a connection. The handler decides about each
/// request; calls never overlap.
class ScriptedHttpServer {
  public:
    using Handler = std::function<ScriptedReply(const SeenRequest&)>;

    /// `port` 0 = any free one.
    explicit ScriptedHttpServer(Handler handler, std::optional<TlsIdentity> tls = std::nullopt, std::uint16_t port = 0);
    ~ScriptedHttpServer();
    ScriptedHttpServer(const ScriptedHttpServer&) = delete;
    ScriptedHttpServer& operator=(const ScriptedHttpServer&) = delete;

    [[nodiscard]] std::uint16_t port() const;
    /// http(s)://127.0.0.1:PORT and the path.
    [[nodiscard]] std::string url(const std::string& path = "") const;
    [[nodiscard]] std::vector<SeenRequest> requests() const;
    [[nodiscard]] std::size_t connections() const;

  private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace distilld::test
