#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {

/// What files may leave out of the names of their tensors.
struct NamePrefix {
    std::string prefix;  ///< empty: nothing
    std::string except;  ///< a tensor that goes without it
};

/// The tensors of a Hugging Face folder: in model.safetensors, or in the shards that model.safetensors.index.json
/// names. Errors name the file. Any thread.
class WeightFolder {
  public:
    /// Opens the files and checks their headers, and the index against them; reads no tensor. Where no tensor has
    /// `names.prefix`, they go by their names in the files with it in front.
    static Result<WeightFolder> open(const std::filesystem::path& folder, const NamePrefix& names = {});

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
    /// By name.
    [[nodiscard]] std::vector<std::string> names() const;
    /// The file that holds the tensor; nullptr: none does.
    [[nodiscard]] const SafetensorsFile* file_of(const std::string& name) const;
    /// What that file calls it.
    [[nodiscard]] const std::string& name_in_file(const std::string& name) const;
    /// SHA-256 of the files' own, in the order of their names: the same weights in the same files. Reads them all.
    [[nodiscard]] Result<std::string> hash() const;

  private:
    explicit WeightFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
    Result<void> open_single(const std::filesystem::path& path);
    Result<void> open_shards(const std::filesystem::path& index);
    void put_in_front(const NamePrefix& names);

    std::filesystem::path folder_;
    std::vector<SafetensorsFile> files_;
    std::map<std::string, std::size_t> file_of_;    ///< tensor name -> index in files_
    std::map<std::string, std::string> shortened_;  ///< tensor name -> that in the file, where they differ
};

}  // namespace distilld::models
