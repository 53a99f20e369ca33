#include "server/openai/file_upload.hpp"

#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "api/kinds/text_checks.hpp"
#include "base/unix_time.hpp"
#include "base/utf8.hpp"

namespace distilld::openai {

namespace {

constexpr std::size_t kMaxName = 255;
constexpr std::size_t kMaxPurpose = 64;

bool is_name(const std::string& text) {
    return !text.empty() && text.size() <= kMaxName && text != "." && text != ".." && is_utf8(text) &&
           text.find_first_of("/\\") == std::string::npos && !api::has_control_character(text);
}

}  // namespace

bool UploadSpace::has_room(std::uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    return taken_ <= limit_ && bytes <= limit_ - taken_;
}

bool UploadSpace::take(std::uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    if (taken_ > limit_ || bytes > limit_ - taken_) {
        return false;
    }
    taken_ += bytes;
    return true;
}

void UploadSpace::give_back(std::uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    taken_ -= std::min(taken_, bytes);
}

bool SpaceClaim::use(std::uint64_t bytes) {
    if (!space_->take(bytes)) {
        return false;
    }
    used_ += bytes;
    return true;
}

FileUpload::FileUpload(std::filesystem::path folder, std::string id, const std::string& boundary,
                       std::shared_ptr<UploadSpace> space)
    : folder_(std::move(folder)), claim_(std::move(space)), reader_(boundary, *this) {
    file_.id = std::move(id);
}

FileUpload::~FileUpload() {
    out_.reset();
    if (!kept_) {
        std::error_code ignored;  // remains are removed at the service's next start
        std::filesystem::remove_all(folder_, ignored);
    }
}

Result<void> FileUpload::take(std::string_view bytes) {
    return reader_.feed(bytes);
}

Result<UploadedFile> FileUpload::finish() {
    if (const auto whole = reader_.finish(); !whole) {
        return whole.error();
    }
    if (!has_purpose_) {
        return blame("purpose", "the field is missing; give purpose=fine-tune");
    }
    if (!has_file_) {
        return blame("file", "the field is missing");
    }
    if (file_.bytes == 0) {
        return blame("file", "the file is empty");
    }
    if (const auto committed = out_->commit(); !committed) {
        return committed.error();
    }
    if (const auto synced = sync_folder(folder_.parent_path()); !synced) {
        return synced.error();
    }
    file_.created_at = static_cast<std::int64_t>(unix_now());
    return file_;
}

void FileUpload::keep() {
    kept_ = true;
    claim_.keep();
}

Error FileUpload::blame(const char* field, std::string what) {
    field_ = field;
    return invalid_input(std::string(field) + ": " + std::move(what));
}

Result<void> FileUpload::begin(const http::MultipartPart& part) {
    if (part.name == "purpose" && !std::exchange(has_purpose_, true)) {
        part_ = Part::purpose;
        return {};
    }
    if (part.name == "file" && !std::exchange(has_file_, true)) {
        part_ = Part::file;
        return begin_file(part);
    }
    field_ = api::has_control_character(part.name) || !is_utf8(part.name) ? "" : part.name;
    const bool twice = part.name == "purpose" || part.name == "file";
    return invalid_input(twice ? part.name + ": the field is given twice"
                               : "the form has an unknown field " + api::quote(to_valid_utf8(part.name)) +
                                     "; it takes purpose and file");
}

Result<void> FileUpload::begin_file(const http::MultipartPart& part) {
    if (!part.filename || !is_name(*part.filename)) {
        return blame("file", "it needs a filename of 1 to 255 bytes of UTF-8, without folders");
    }
    file_.filename = *part.filename;
    if (::mkdir(folder_.c_str(), 0700) != 0) {
        const int number = errno;
        return write_error(folder_.string() + ": " + std::strerror(number), number);
    }
    auto made = AtomicFile::create(folder_ / kStoredName);
    if (!made) {
        return made.error();
    }
    out_.emplace(*std::move(made));
    return {};
}

Result<void> FileUpload::data(std::string_view bytes) {
    if (part_ == Part::file) {
        if (!claim_.use(bytes.size())) {
            no_room_ = true;
            return Error{ErrorKind::disk_full, "there is no space for the file beside those sent before"};
        }
        file_.bytes += bytes.size();
        return out_->write(bytes);
    }
    if (file_.purpose.size() + bytes.size() > kMaxPurpose) {
        return blame("purpose", "it must be fine-tune");
    }
    file_.purpose += bytes;
    return {};
}

Result<void> FileUpload::end() {
    if (part_ == Part::purpose && file_.purpose != kFineTune) {
        return blame("purpose", "it must be fine-tune, not " + api::quote(to_valid_utf8(file_.purpose)));
    }
    part_ = Part::none;
    return {};
}

}  // namespace distilld::openai
