#include "server/security/key_ring.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "api/job_types.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kKeysComponent = "keys";
constexpr std::size_t kMinSecretBytes = 32;
constexpr std::size_t kMaxSecretBytes = 512;

/// Distinguishes a file that was replaced or changed from the previous one.
using Version = std::tuple<dev_t, ino_t, off_t, time_t, long>;

Version version_of(const std::filesystem::path& path) {
    struct stat there{};
    if (::stat(path.c_str(), &there) != 0) {
        return {};
    }
    return {there.st_dev, there.st_ino, there.st_size, there.st_mtim.tv_sec, there.st_mtim.tv_nsec};
}

/// A user who can write to the file can create a key.
void warn_of_open_file(const std::filesystem::path& path) {
    struct stat there{};
    if (::stat(path.c_str(), &there) == 0 && (there.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        log::warn(kKeysComponent, path.string() + " can be written by others: chmod 600 " + path.string());
    }
}

class WatchedKeyRing final : public KeyRing {
  public:
    WatchedKeyRing(KeyFile file, const KeyRingOptions& options, Version version, std::vector<ApiKey> keys)
        : file_(std::move(file)),
          look_interval_(options.look_interval),
          note_interval_(options.note_interval),
          admin_hash_(options.admin_secret ? hash_of_secret(*options.admin_secret) : std::string()),
          version_(version) {
        take(std::move(keys));
        thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    }

    ~WatchedKeyRing() override {
        thread_.request_stop();
        thread_.join();
        note_use();
    }
    WatchedKeyRing(const WatchedKeyRing&) = delete;
    WatchedKeyRing& operator=(const WatchedKeyRing&) = delete;

    bool protects() const override { return protects_; }

    std::optional<http::Caller> find(std::string_view secret) override {
        if (secret.size() > kMaxSecretBytes) {
            return std::nullopt;
        }
        const std::string hash = hash_of_secret(secret);
        const std::lock_guard guard(mutex_);
        const ApiKey* found = nullptr;
        for (const ApiKey& key : keys_) {  // compare all, so that the time reveals nothing
            if (same_hash(key.sha256, hash)) {
                found = &key;
            }
        }
        if (found == nullptr) {
            return std::nullopt;
        }
        if (found->id != kAdminKeyName) {  // it is not in the file
            used_[found->id] = std::chrono::system_clock::now();
        }
        return http::Caller{found->name, found->role, found->id};
    }

    bool holds(const http::Caller& caller) override {
        const std::lock_guard guard(mutex_);
        return std::ranges::any_of(keys_,
                                   [&](const ApiKey& key) { return key.id == caller.id && key.role == caller.role; });
    }

  private:
    /// False: the same keys, except for the times of use.
    bool take(std::vector<ApiKey> keys) {
        if (!admin_hash_.empty()) {
            ApiKey admin;
            admin.id = kAdminKeyName;
            admin.name = kAdminKeyName;
            admin.role = http::Role::admin;
            admin.sha256 = admin_hash_;
            keys.push_back(std::move(admin));
        }
        if (!keys.empty()) {
            protects_ = true;
        }
        const auto same = [](const ApiKey& one, const ApiKey& other) {
            return one.id == other.id && one.name == other.name && one.role == other.role && one.sha256 == other.sha256;
        };
        const std::lock_guard guard(mutex_);
        const bool changed = !std::ranges::equal(keys_, keys, same);
        keys_ = std::move(keys);
        return changed;
    }

    void watch(const std::stop_token& stop) {
        auto note_at = Clock::now() + note_interval_;
        std::unique_lock lock(sleep_mutex_);
        while (!stop.stop_requested()) {
            sleep_.wait_for(lock, stop, look_interval_, [] { return false; });
            if (stop.stop_requested()) {
                return;
            }
            look();
            if (Clock::now() >= note_at) {
                note_use();
                note_at = Clock::now() + note_interval_;
            }
        }
    }

    void look() {
        const Version now = version_of(file_.path());
        if (now == version_) {
            return;
        }
        version_ = now;
        auto keys = file_.read();
        if (!keys) {
            // The previous keys stay valid: a damaged file neither admits nor locks out a caller.
            log::error(kKeysComponent,
                       keys.error().message + "; the keys read before remain valid until it can be read");
            return;
        }
        warn_of_open_file(file_.path());
        if (take(*keys)) {
            log::info(kKeysComponent,
                      file_.path().string() + " has changed: " + std::to_string(keys->size()) + " keys");
        }
    }

    void note_use() {
        std::map<std::string, std::string> texts;
        {
            const std::lock_guard guard(mutex_);
            for (const auto& [id, when] : used_) {
                texts.emplace(id, api::rfc3339(when));
            }
            used_.clear();
        }
        if (texts.empty()) {
            return;
        }
        if (const auto noted = file_.note_use(texts); !noted) {
            log::warn(kKeysComponent, noted.error().message);
        }
    }

    const KeyFile file_;
    const std::chrono::milliseconds look_interval_;
    const std::chrono::milliseconds note_interval_;
    const std::string admin_hash_;  ///< empty: no such key
    Version version_;               ///< only for the thread
    std::atomic<bool> protects_ = false;
    std::mutex mutex_;
    std::vector<ApiKey> keys_;
    std::map<std::string, std::chrono::system_clock::time_point> used_;  ///< by id, not written yet
    std::mutex sleep_mutex_;
    std::condition_variable_any sleep_;
    std::jthread thread_;
};

bool is_printable(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

Result<std::shared_ptr<KeyRing>> open_key_ring(KeyFile file, const KeyRingOptions& options) {
    if (options.admin_secret) {
        const std::string& secret = *options.admin_secret;
        if (secret.size() < kMinSecretBytes || secret.size() > kMaxSecretBytes || !is_printable(secret)) {
            return invalid_input(std::string(kAdminKeyVariable) +
                                 " must have 32 to 512 characters without blanks, drawn at random (openssl rand -hex "
                                 "32)");
        }
    }
    const Version version = version_of(file.path());  // before the read: a change in between is read again
    auto keys = file.read();
    if (!keys) {
        return keys.error();
    }
    warn_of_open_file(file.path());
    return std::shared_ptr<KeyRing>(
        std::make_shared<WatchedKeyRing>(std::move(file), options, version, std::move(*keys)));
}

}  // namespace distilld
