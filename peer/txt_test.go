package peer

import (
	"strings"
	"testing"
)

const (
	txtID = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"
	txtFP = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

func TestParseTXT(t *testing.T) {
	fp, err := ParseFingerprint(txtFP)
	if err != nil {
		t.Fatal(err)
	}
	both := []string{TXTClusterIDKey, TXTFingerprintKey}
	for _, tc := range []struct {
		name     string
		txt      map[string]string
		required []string
		want     Announced
		err      string // part of it; "" = none
	}{
		{"nothing", nil, nil, Announced{Namespace: "liqo", Version: "1"}, ""},
		{"everything", map[string]string{"txtvers": "1", "id": txtID, "name": "Halle 3", "ns": "guests", "fp": txtFP, "v": "2.1-rc"}, both,
			Announced{txtID, "Halle 3", "guests", fp, "2.1-rc"}, ""},
		{"an ID alone", map[string]string{"id": txtID}, nil, Announced{ClusterID: txtID, ClusterName: txtID[:8], Namespace: "liqo", Version: "1"}, ""},
		{"a fingerprint alone", map[string]string{"fp": txtFP}, nil, Announced{Namespace: "liqo", Fingerprint: fp, Version: "1"}, ""},
		{"unknown keys", map[string]string{"colour": "green"}, nil, Announced{Namespace: "liqo", Version: "1"}, ""},
		{"the ID is missing", map[string]string{"fp": txtFP}, both, Announced{}, `TXT key "id": cluster ID "": is empty`},
		{"the fingerprint is missing", map[string]string{"id": txtID}, both, Announced{}, `TXT key "fp": fingerprint "": want the 64 hexadecimal digits of a SHA-256`},
		{"both are missing", nil, both, Announced{}, `TXT key "id"`},
		{"an empty ID", map[string]string{"id": ""}, nil, Announced{}, `TXT key "id": cluster ID "": is empty`},
		{"an empty fingerprint", map[string]string{"fp": ""}, nil, Announced{}, `TXT key "fp"`},
		{"the record's version comes first", map[string]string{"txtvers": "2", "id": "?"}, both, Announced{}, `TXT key "txtvers" is "2": only version 1 of the record is known`},
		{"an empty version of the record", map[string]string{"txtvers": ""}, nil, Announced{}, `TXT key "txtvers" is ""`},
		{"an older version of the record", map[string]string{"txtvers": "0"}, nil, Announced{}, `TXT key "txtvers" is "0"`},
		{"a long version of the record", map[string]string{"txtvers": strings.Repeat("9", 199)}, nil, Announced{}, `"` + strings.Repeat("9", 97) + `..."`},
		{"a bad name", map[string]string{"name": "\x1b[2J"}, nil, Announced{}, `TXT key "name": cluster name "\x1b[2J" contains characters that cannot be printed`},
		{"a bad namespace", map[string]string{"ns": "Kube System"}, nil, Announced{}, `TXT key "ns": namespace "Kube System": must consist of lower-case letters, digits and inner hyphens`},
		{"a bad version", map[string]string{"v": "1 2"}, nil, Announced{}, `TXT key "v": version "1 2" is not 1 to 16 letters, digits, dots and hyphens`},
		{"an empty version", map[string]string{"v": ""}, nil, Announced{}, `TXT key "v"`},
		{"the longest version", map[string]string{"v": "ABCxyz0123456789"}, nil, Announced{Namespace: "liqo", Version: "ABCxyz0123456789"}, ""},
		{"too long a version", map[string]string{"v": "ABCxyz0123456789."}, nil, Announced{}, `TXT key "v"`},
	} {
		got, err := ParseTXT(tc.txt, tc.required...)
		switch {
		case tc.err == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%s: error %v, want %s", tc.name, err, tc.err)
		case got != tc.want:
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func FuzzParseTXT(f *testing.F) {
	f.Add("1", txtID, "barn", "liqo", txtFP, "1")
	f.Add("", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, layout, id, name, ns, fp, v string) {
		a, err := ParseTXT(map[string]string{"txtvers": layout, "id": id, "name": name, "ns": ns, "fp": fp, "v": v})
		if err != nil {
			if a != (Announced{}) {
				t.Errorf("an error came with %+v", a)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := ParseTXT(map[string]string{"txtvers": TXTVersion, "id": string(a.ClusterID), "name": a.ClusterName, "ns": a.Namespace, "fp": a.Fingerprint.String(), "v": a.Version},
			TXTClusterIDKey, TXTNameKey, TXTNamespaceKey, TXTFingerprintKey, TXTProtocolKey)
		if err != nil || again != a {
			t.Errorf("%+v became %+v, %v", a, again, err)
		}
	})
}
