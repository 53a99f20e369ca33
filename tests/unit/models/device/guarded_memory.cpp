#include "tests/unit/models/device/guarded_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace distilld::test {
namespace {

constexpr std::size_t kArena = std::size_t{1} << 32;  ///< of addresses; pages exist where something is written
constexpr std::size_t kStep = 512;

class Guarded final : public GuardedMemory {
  public:
    Guarded() {
        const int file = memfd_create("fake device", 0);
        if (file < 0 || ftruncate(file, kArena) != 0) {
            throw std::runtime_error("no memory for the fake device");
        }
        const auto map = [file](int rights) {
            void* const at = mmap(nullptr, kArena, rights, MAP_SHARED | MAP_NORESERVE, file, 0);
            if (at == MAP_FAILED) {
                throw std::runtime_error("no addresses for the fake device");
            }
            return static_cast<char*>(at);
        };
        guarded_ = map(PROT_NONE);
        open_ = map(PROT_READ | PROT_WRITE);
        close(file);
    }

    c10::DataPtr allocate(std::size_t bytes) override {
        const std::scoped_lock lock(mutex_);
        const std::size_t size = std::max<std::size_t>(1, (bytes + kStep - 1) / kStep) * kStep;
        TORCH_CHECK_WITH(OutOfMemoryError, limit_ == 0 || held_ + size <= limit_, "the fake device has no ", bytes,
                         " bytes left");
        std::vector<std::size_t>& free = free_[size];
        std::size_t offset = end_;
        if (free.empty()) {
            end_ += size;
            TORCH_CHECK(end_ <= kArena, "the fake device is full");
        } else {
            offset = free.back();
            free.pop_back();
        }
        // As of memory that others have used.
        std::memset(open_ + offset, 0x7F, size);
        held_ += size;
        sizes_[guarded_ + offset] = size;
        return {guarded_ + offset, guarded_ + offset, &release, c10::Device(c10::DeviceType::PrivateUse1, 0)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        std::memcpy(open_ + (static_cast<char*>(to) - guarded_), open_ + (static_cast<const char*>(from) - guarded_),
                    bytes);
    }

    void* seen(void* address) override {
        return address == nullptr ? nullptr : open_ + (static_cast<char*>(address) - guarded_);
    }

    void limit(std::uint64_t bytes) override {
        const std::scoped_lock lock(mutex_);
        limit_ = bytes == 0 ? 0 : held_ + bytes;
    }

  private:
    static void release(void* address) {
        auto& self = static_cast<Guarded&>(device_memory());
        const std::scoped_lock lock(self.mutex_);
        const auto given = self.sizes_.find(address);
        self.held_ -= given->second;
        self.free_[given->second].push_back(static_cast<std::size_t>(static_cast<char*>(address) - self.guarded_));
        self.sizes_.erase(given);
    }

    std::mutex mutex_;
    char* guarded_ = nullptr;
    char* open_ = nullptr;
    std::size_t end_ = 0;
    std::size_t held_ = 0;
    std::size_t limit_ = 0;
    std::map<std::size_t, std::vector<std::size_t>> free_;
    std::map<void*, std::size_t> sizes_;
};

class Pinned final : public PinnedMemory {
  public:
    c10::DataPtr allocate(std::size_t bytes) override {
        void* const address = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
        const std::scoped_lock lock(mutex_);
        sizes_[static_cast<char*>(address)] = bytes;
        return {address, address, &release, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

    bool holds(const void* address) override {
        const std::scoped_lock lock(mutex_);
        auto after = sizes_.upper_bound(static_cast<char*>(const_cast<void*>(address)));
        return after != sizes_.begin() && address < (--after)->first + after->second;
    }

  private:
    static void release(void* address) {
        auto& self = static_cast<Pinned&>(pinned_memory());
        const std::scoped_lock lock(self.mutex_);
        self.sizes_.erase(static_cast<char*>(address));
        std::free(address);
    }

    std::mutex mutex_;
    std::map<char*, std::size_t> sizes_;
};

}  // namespace

GuardedMemory& device_memory() {
    static auto* const kept = new Guarded;  // tensors of static duration give their memory back after main()
    return *kept;
}

PinnedMemory& pinned_memory() {
    static auto* const kept = new Pinned;
    return *kept;
}

}  // namespace distilld::test
