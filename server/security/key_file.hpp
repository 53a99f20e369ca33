#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/security/api_key.hpp"

namespace distilld {

/// The service's keys on disk: `keys.json` of its data folder, which nobody else may read (0600) and which is replaced
/// as a whole. Several processes may change it: each change is made under a lock. Blocks; any thread.
class KeyFile {
  public:
    explicit KeyFile(std::filesystem::path data_dir);

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

    /// In the order in which they were made; none where there is no file. The error names the file and what is wrong.
    [[nodiscard]] Result<std::vector<ApiKey>> read() const;

    /// Makes the folder when it is not there. invalid_input: the name is none, or taken.
    [[nodiscard]] Result<NewApiKey> add(const std::string& name, api::Role role) const;

    /// invalid_input: there is no key of that name.
    [[nodiscard]] Result<void> revoke(const std::string& name) const;

    /// Notes when keys (by their ids) were used last; those that are there no more are left out.
    [[nodiscard]] Result<void> note_use(const std::map<std::string, std::string>& last_used) const;

  private:
    template <class Change>
    Result<void> change(Change change) const;

    std::filesystem::path folder_;
    std::filesystem::path path_;
};

}  // namespace distilld
