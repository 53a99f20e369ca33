#include "server/supervisor/remote_attempts.hpp"

#include <openssl/crypto.h>

namespace distilld {

void RemoteAttempts::add(std::string token_hash, std::shared_ptr<AttemptPort> port) {
    const std::lock_guard guard(mutex_);
    ports_.emplace_back(std::move(token_hash), std::move(port));
}

void RemoteAttempts::remove(const std::string& token_hash) {
    const std::lock_guard guard(mutex_);
    std::erase_if(ports_, [&token_hash](const auto& port) { return port.first == token_hash; });
}

std::shared_ptr<AttemptPort> RemoteAttempts::find(const std::string& token_hash) const {
    const std::lock_guard guard(mutex_);
    std::shared_ptr<AttemptPort> found;
    for (const auto& [hash, port] : ports_) {
        if (hash.size() == token_hash.size() && ::CRYPTO_memcmp(hash.data(), token_hash.data(), hash.size()) == 0) {
            found = port;
        }
    }
    return found;
}

void RemoteAttempts::complete() {
    const std::lock_guard guard(mutex_);
    complete_ = true;
}

LinkCounts RemoteAttempts::counts() const {
    const std::lock_guard guard(mutex_);
    return counts_;
}

bool RemoteAttempts::is_complete() const {
    const std::lock_guard guard(mutex_);
    return complete_;
}

}  // namespace distilld
