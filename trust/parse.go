package trust

import "fmt"

// ParseKey returns the cluster key of what KeyFile and ChainFile hold; chain is nil
// when there is no such file. It looks at no file, so it does not mind whose they
// are: it is for those who check or copy the key of an agent. The error wraps
// ErrKeyDamaged; for what is wrong with the chain see Key.ChainProblem.
func ParseKey(key, chain []byte) (*Key, error) {
	k, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyDamaged, err)
	}
	if chain != nil {
		k.successions, k.chainProblem = parseChain(chain, k.fingerprint)
	}
	return k, nil
}
