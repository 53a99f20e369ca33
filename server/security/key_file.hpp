#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/security/api_key.hpp"

namespace distilld {

/// The service's keys on disk: `keys.json` in its data folder, readable only by the owner (0600) and always replaced as
/// a whole. Several processes may change it, each under a lock. Blocks; any thread.
class KeyFile {
  public:
    explicit KeyFile(std::filesystem::path data_dir);

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

    /// In order of creation; empty without a file. The error names the file and what is wrong.
    [[nodiscard]] Result<std::vector<ApiKey>> read() const;

    /// Creates the folder if missing. invalid_input: the name is invalid or taken.
    [[nodiscard]] Result<NewApiKey> add(const std::string& name, http::Role role) const;

    /// invalid_input: no key has that name.
    [[nodiscard]] Result<void> revoke(const std::string& name) const;

    /// Records when keys (by id) were last used; removed ones are ignored.
    [[nodiscard]] Result<void> note_use(const std::map<std::string, std::string>& last_used) const;

  private:
    template <class Change>
    Result<void> change(Change change) const;

    std::filesystem::path folder_;
    std::filesystem::path path_;
};

}  // namespace distilld
